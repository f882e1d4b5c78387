"""`python -m topics.cli`, where the console script is not on the path."""

from topics.cli.main import main

main()
