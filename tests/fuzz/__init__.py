"""Every decoder with bytes it was not made for: a value or a documented error comes back, and nothing else happens.

decoders.py        the decoders, each with a few good inputs to start from
test_decoders.py   with hypothesis, in every test run
__main__.py        with atheris, coverage-guided: `make fuzz MINUTES=30`
"""
