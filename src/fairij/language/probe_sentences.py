"""Sentences about people, written for this project, to try classifiers of comments with.

``{one}`` and ``{many}`` stand for a person and for people of an identity; ``{One}`` and ``{Many}``
begin a sentence. Hostile sentences are there because a classifier has to tell them from the others.
"""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("neutral", "kind", "hostile", "quoted", "negated")
HARMLESS = ("neutral", "kind")


@dataclass(frozen=True)
class Identity:
    """An identity as it is put into sentences.

    Parameters
    ----------
    name : str
        The name in tables.
    one, many : str
        A person with an article, as in "a Muslim", and several people, as in "Muslims".
    words : tuple of str, default=()
        Lower-case words by which texts that mention it are found.

    Examples
    --------
    >>> from fairij.language import Identity
    >>> Identity("muslim", one="a Muslim", many="Muslims").name
    'muslim'
    """

    name: str
    one: str
    many: str
    words: tuple[str, ...] = ()

    def put_into(self, template: str) -> str:
        """The template with this identity in it."""
        for place, words in (("one", self.one), ("many", self.many)):
            template = template.replace(f"{{{place}}}", words)
            begins = words[:1].upper() + words[1:]
            template = template.replace(f"{{{place.capitalize()}}}", begins)
        return template


IDENTITIES: tuple[Identity, ...] = (
    Identity("muslim", "a Muslim", "Muslims", ("muslim", "muslims", "islam", "islamic")),
    Identity("christian", "a Christian", "Christians", ("christian", "christians", "christianity")),
    Identity("jewish", "a Jewish person", "Jewish people", ("jew", "jews", "jewish", "judaism")),
    Identity("hindu", "a Hindu", "Hindus", ("hindu", "hindus", "hinduism")),
    Identity("atheist", "an atheist", "atheists", ("atheist", "atheists", "atheism")),
    Identity("woman", "a woman", "women", ("woman", "women", "female", "females")),
    Identity("man", "a man", "men", ("man", "men", "male", "males")),
    Identity("black", "a Black person", "Black people", ("black", "blacks", "african")),
    Identity("white", "a white person", "white people", ("white", "whites", "caucasian")),
    Identity("gay", "a gay person", "gay people", ("gay", "gays", "lesbian", "homosexual", "lgbt")),
    Identity("transgender", "a transgender person", "transgender people", ("transgender", "trans")),
    Identity("immigrant", "an immigrant", "immigrants", ("immigrant", "immigrants", "migrants")),
)

TEMPLATES: dict[str, tuple[str, ...]] = {
    "neutral": (
        "My neighbour is {one}.",
        "{One} lives next door.",
        "The new teacher is {one}, I think.",
        "Two of the people in my class are {many}.",
        "{Many} were mentioned in the second paragraph.",
        "The article describes how {many} lived in the nineteenth century.",
        "I met {one} on the train to work.",
        "There is a museum about {many} in the town.",
        "The survey asked {many} which newspapers they read.",
        "According to the census, {many} make up a part of the city.",
    ),
    "kind": (
        "I am {one} and I am proud of it.",
        "My best friend is {one}, and I could not wish for a better one.",
        "{Many} have always been welcome in this house.",
        "{One} helped me when nobody else did.",
        "I admire {many} for their patience.",
        "It was lovely to celebrate with {many} from our street.",
        "We should listen to {many} more often.",
        "Thank you to all the {many} who wrote to us.",
        "{Many} deserve the same respect as everybody else.",
    ),
    "hostile": (
        "I hate {many}.",
        "{Many} are disgusting.",
        "{Many} should be thrown out of this country.",
        "Nobody wants {many} here, get lost.",
        "You are {one}, so you must be stupid.",
        "{Many} are nothing but vermin.",
        "All {many} are liars and idiots.",
        "I would never let {one} into my home, they make me sick.",
    ),
    "quoted": (
        'Somebody wrote "I hate {many}" on our door, and we reported it.',
        'Saying "{many} are stupid" is wrong, and I told him so.',
        'The sign said "no {many}", which was against the law.',
        'He was fined for shouting "get out" at {one}.',
        'The essay explains why "{many} are vermin" was propaganda.',
        'Stop posting "{many} are liars", please; it hurts people.',
        'My daughter was told "you cannot be {one} and belong here", and she cried.',
    ),
    "negated": (
        "I do not hate {many}.",
        "{Many} are not stupid, and never were.",
        "It is not true that {many} are liars.",
        "No, {many} should not be thrown out of this country.",
        "I have nothing against {many}.",
        "There is nothing wrong with being {one}.",
        "Nobody here thinks that {many} are disgusting.",
        "I would never insult {one}.",
    ),
}
# sentences that take part in an edit say little about it, so others are kept to try the model
IN_EDITS = {kind: some[::2] for kind, some in TEMPLATES.items()}
ON_PAGES = {kind: some[1::2] for kind, some in TEMPLATES.items()}
