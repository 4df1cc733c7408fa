"""scikit-learn models."""
