"""Speed, memory and agreement of influence scores, against named peers on one problem."""
