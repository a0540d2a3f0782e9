"""Random patterns of GLOB, and texts of the same few signs."""

from hypothesis import strategies as st

from cer_gpu.ceql.patterns import glob_regex

SIGNS = ["a", "b", "A", "é", "É", "ß", "ẞ", "\u03c3", "\u03c2", "\u03a3", "k", "\u212a", "İ", "i", "\U0001f525"]
SIGNS += [*r"-.^$+(){}|\/]!_*?[' ", "\n", "\t", "\0"]
values = st.lists(st.sampled_from(SIGNS), max_size=5).map("".join)


@st.composite
def classes(draw):
    """Draw a class of GLOB: members, ranges, a bracket in first place, a hyphen in last."""
    plain = [sign for sign in SIGNS if sign not in "]-"]
    ranges = st.lists(st.sampled_from(sorted(SIGNS)), min_size=2, max_size=2).map(sorted).map("-".join)
    members = draw(st.lists(st.sampled_from(plain) | ranges.filter(lambda text: "]" not in text), max_size=3))
    inside = draw(st.sampled_from(["", "]"])) + "".join(members) + draw(st.sampled_from(["", "-"]))
    return f"[{draw(st.sampled_from(['', '!', '^']))}{inside}]"


globs = st.lists(st.sampled_from([*SIGNS, "*", "?"]).filter(lambda sign: sign != "[") | classes(), max_size=4).map(
    "".join
)


def is_pattern(pattern):
    try:
        glob_regex(pattern)
    except ValueError:
        return False
    return True
