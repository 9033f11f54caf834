"""The ways of speaking that wrap an instruction, as tables of patterns.

They are matched against lower-case words joined by one space. A comma may come before any space.
"""

NUMBER_PATTERN = r"one|two|three|four|five|six|seven|eight|nine|ten|\d+"

# Patterns and the words put in their place. Order matters: the earlier row wins, longer frames come
# first.
REWRITE_RULES: tuple[tuple[str, str], ...] = (
    # contractions of speech
    (r"(?:gonna|gunna)", "going to"),
    (r"(?:wanna)", "want to"),
    (r"(?:gotta|got to)", "have to"),
    (r"'em", "them"),
    # noises and fillers
    (r"(?:um+|uh+|erm?|hmm+|mm+|ah|oh)", ""),
    (
        r"(?:just|actually|basically|literally|simply|obviously|honestly|definitely|really"
        r"|kinda|sorta|please)",
        "",
    ),
    (r"(?:kind|sort) of", ""),
    (r"for one thing", ""),
    (
        r"(?:i mean(?=,)|you know(?=,)|if you will|like i said|as i said|as you can see"
        r"|you guys(?=,)|pretty much)",
        "",
    ),
    (r"like (?:this|that|so)(?=,|$)", ""),
    (r"(?:over|right|up|down) (?:here|there)", ""),
    (r"go(?:ing)? ahead and", ""),
    (r"(?:come|go) (?:on )?(?:in|over|up|down|back) (?:here )?and", ""),
    # "what you want to do is", "all you need to do here is to", "the first thing we're going to do
    # is we're going to"
    (
        r"(?:all|what|(?:and |so )?the (?:\w+ )?(?:thing|step|part))(?: that)?"
        r" (?:you|we|i|he|she|they)"
        r"(?:'ll|'re|'m|'ve|'d| will| are| am| have| would)?"
        r"(?: (?:needs?|wants?|have|has|like|going|got|do))?(?: to)?(?: do)?"
        r"(?: (?:here|now|next|first|then))?(?: with (?:it|this|that|them))? is(?: that)?"
        r"(?: (?:you|we|i)(?:'ll|'re|'m| will)?(?: (?:need|want|have|going))?(?= to))?"
        r"(?: to)?(?= VERB)",
        "you",
    ),
    (
        r"(?:(?:the|your|our|my) (?:first|next|last|final|second|third)"
        r" (?:thing|step|part|job|move)(?: here)?"
        rf"|(?:step|number) (?:{NUMBER_PATTERN})) is"
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
        r"(?:(?:you|we|i)(?:'ll|'re|'m| will| are)? ?(?:want|need|going|have)? to )?"
        r"(?:make|be) sure(?: that)? (?:you|we)(?= )",
        "you",
    ),
    (r"(?:make|be) sure (?:to|and)(?= )", ""),
    (r"make sure(?: that)?(?= )", "ensure that"),
    (r"(?:remember|don't forget|do not forget|never forget|try) (?:to|and)(?= )", ""),
    (r"i(?:'d| would)? (?:want|need|like) you to", "you"),
)

# Words that open a spoken clause and say nothing of the action. They are taken off repeatedly.
OPENER_PATTERNS: tuple[str, ...] = (
    r"(?:and|but|okay|ok|alright|all right|right|yeah|yes|then|finally|lastly|also|again|plus"
    r"|anyway)",
    r"(?:so|now)(?! that\b)(?! (?:much|far|long|many)\b)",
    r"(?:next|well)(?! (?:to|as|done)\b)",
    r"(?:first|second|third|firstly|secondly)(?: of all| off| up)?(?! \w+ (?:is|was)\b)"
    r"(?! (?:thing|step|part|one|coat|layer|row)\b)",
    r"(?:after that|from there|from here|at this point|at the end|once again|in the meantime"
    r"|meanwhile)(?=,)",
    r"(?:to (?:get started|start|begin)(?: off| with)?"
    r"|(?:my|the|your) (?:next|last|first) step)(?=,)",
    r"to do (?:this|that|it|so)",
    rf"(?:step|number) (?:{NUMBER_PATTERN})(?! (?:is|of|to|through|and)\b)",
    r"(?:guys|everybody|everyone|you guys)(?=,)",
)
