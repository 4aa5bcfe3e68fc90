"""Are two mathematical answers the same? Reading, exact and high-precision arithmetic, and typed comparison.

    text --extract--> answer --lexer--> tokens --parser--> formulas --answers--> a typed answer --compare--> same or not

Everything runs in the calling thread, in time and memory bounded by construction (`limits`): no signal, no eval, no
computer algebra. Two formulas are one when they agree exactly, or at several pseudo-random points to at least forty
digits beyond the smallest number that occurs in either.
"""
