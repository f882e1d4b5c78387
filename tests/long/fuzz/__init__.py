"""Every decoder with bytes it was not made for: a value or a documented error comes back, and nothing else happens.

decoders.py        the decoders: of files, and of what clients send
protocols.py       connections, messages and whole servers, as functions of bytes
examples.py        inputs made by hand, by what they are
corpus/            of each decoder what the fuzzer found and kept
test_decoders.py   all of these, and damage to them by hypothesis, in every test run
__main__.py        with atheris, coverage-guided: `make fuzz MINUTES=30`
"""
