"""Ways of speaking that wrap an instruction, as data: what `spoken` takes out or puts plainly before the parser reads.

from stepline.writing.word_sets import word_set

Patterns are matched against lower-case words joined by one space; a comma may stand before any space.
"""

from stepline.writing.word_sets import word_set

# pattern -> words put in its place. Order matters: the earlier row wins, longer frames come first.
REWRITES: tuple[tuple[str, str], ...] = (
    # contractions of speech
    (r"(?:gonna|gunna)", "going to"),
    (r"(?:wanna)", "want to"),
    (r"(?:gotta|got to)", "have to"),
    (r"'em", "them"),
    # noises and fillers
    (r"(?:um+|uh+|erm?|hmm+|mm+|ah|oh)", ""),
    (r"(?:just|actually|basically|literally|simply|obviously|honestly|definitely|really|kinda|sorta|please)", ""),
    (r"(?:kind|sort) of", ""),
    (r"(?:i mean(?=,)|you know(?=,)|if you will|like i said|as i said|as you can see|you guys(?=,)|pretty much)", ""),
    (r"like (?:this|that|so)(?=,|$)", ""),
    (r"(?:over|right|up|down) (?:here|there)", ""),
    (r"go(?:ing)? ahead and", ""),
    (r"(?:come|go) (?:on )?(?:in|over|up|down|back) (?:here )?and", ""),
    # "what you want to do is", "all you need to do here is to", "the first thing we're going to do is we're going to"
    (
        r"(?:all|what|(?:and |so )?the (?:\w+ )?(?:thing|step|part))(?: that)? (?:you|we|i)"
        r"(?:'ll|'re|'m|'ve|'d| will| are| am| have| would)?(?: (?:need|want|have|like|going|got|do))?(?: to)?(?: do)?"
        r"(?: (?:here|now|next|first|then))?(?: with (?:it|this|that|them))? is(?: that)?"
        r"(?: (?:you|we|i)(?:'ll|'re|'m| will)?(?: (?:need|want|have|going))?(?= to))?(?: to)?(?= VERB)",
        "you",
    ),
    (
        r"(?:the|your|our|my) (?:first|next|last|final|second|third) (?:thing|step|part|job|move)(?: here)? is"
        r"(?: going)? to",
        "you",
    ),
    (r"(?:it's|it is|now it's) time to", "you"),
    (r"the way (?:you|we|i) do (?:this|that|it) is(?: by| to)?", "you"),
    (r"all that's left(?: to do)? is(?: to)?", "you"),
    (r"click(?: and hold)? and drag", "drag"),
    (r"(right|left|double|triple|shift|control|alt|command|option) (click)", r"\1-\2"),
    # the parser reads "I'll add" more surely than "I'm going to add"
    (r"(i|we|you)(?:'m|'re| am| are) going to(?= VERB)", r"\1'll"),
    # reminders
    (
        r"(?:(?:you|we|i)(?:'ll|'re|'m| will| are)? ?(?:want|need|going|have)? to )?(?:make|be) sure(?: that)?"
        r" (?:you|we)(?= )",
        "you",
    ),
    (r"(?:make|be) sure (?:to|and)(?= )", ""),
    (r"make sure(?: that)?(?= )", "ensure that"),
    (r"(?:remember|don't forget|do not forget|never forget|try) (?:to|and)(?= )", ""),
    (r"i(?:'d| would)? (?:want|need|like) you to", "you"),
)

# Words that open a spoken clause and say nothing of the action; taken off again and again.
OPENERS: tuple[str, ...] = (
    r"(?:and|but|okay|ok|alright|all right|right|yeah|yes|then|finally|lastly|also|again|plus|anyway)",
    r"(?:so|now)(?! that\b)(?! (?:much|far|long|many)\b)",
    r"(?:next|well)(?! (?:to|as|done)\b)",
    r"(?:first|second|third|firstly|secondly)(?: of all| off| up)?(?! \w+ (?:is|was)\b)"
    r"(?! (?:thing|step|part|one|coat|layer|row)\b)",
    r"(?:after that|from there|from here|at this point|at the end|once again|in the meantime|meanwhile)(?=,)",
    r"(?:to (?:get started|start|begin)(?: off| with)?|(?:my|the|your) (?:next|last|first) step)(?=,)",
    r"to do (?:this|that|it|so)",
    r"(?:guys|everybody|everyone|you guys)(?=,)",
)

SUBORDINATORS = word_set(
    """
    if when once after before while because since as until unless even where whenever although though
    """
)
# A phrase with one of these may stand before the order.
INTRODUCERS = SUBORDINATORS | word_set("with using for from in on at to starting beginning working")
SUBJECTS = word_set(
    """
    you we i you're we're i'm you'll we'll i'll you'd let's i've we've you've
    """
)
JOINTS = word_set("and but then now next okay alright so or")

# What may follow a verb that opens a clause: then it is an order and not a noun ("water the plant", not "water boils").
AFTER_ORDER = word_set(
    """
    the a an your my our his her its some any this that these those it them him all both each every another one
    two three four five six seven eight nine ten twelve fifteen twenty thirty half several more enough on in to
    off up down with into onto out over through back around along across between under from at by for within
    inside outside above below beside behind beneath underneath against toward towards together apart aside
    straight slowly gently carefully gradually lightly until about
    """
)
# What opens a noun phrase: a verb form before one of these is a verb and no noun ("and mark the holes").
NAMERS = word_set(
    """
    the a an your my our his her its some any it them all both each every this that these those
    """
)
# Verbs of hands, tools and screens that are orders whatever follows them ("press control J", "and choose Transform").
ORDER_VERBS = word_set(
    """
    press click select choose type drag drop open close copy paste delete insert attach remove place pull push
    hit grab pick take add put set turn go hold spread pour stir mix hover navigate apply enter
    """
)
NEVER_ORDERS = word_set(
    """
    the a an i we you it is are was were be been can will would may might must could should do does did have has
    had there here now then so that this what who how why while like out in on up down over as just well both
    """
)
TELLERS = word_set("then next now finally first second third lastly")  # they tell an order of doing
OPENING = TELLERS | word_set("after that")  # openers that may still stand before a verb
# After these a base form is no order: it has a subject, an auxiliary, or is a noun.
BINDERS = (
    SUBJECTS
    | NAMERS
    | NEVER_ORDERS
    | word_set(
        """
    to and or not never they he she who that which don't doesn't didn't please always also only new old small
    big good
    """
    )
)
# What is said with these holds no further order: "don't lift and turn the ...", "in the next video ..., save it".
NOT_FOR_ALL = word_set("not never video tutorial episode")
