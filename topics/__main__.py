"""`python -m topics serve ...`: the console script without its script."""

from topics.cli.main import main

if __name__ == "__main__":
    main()
