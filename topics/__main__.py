"""The console script without its script: `python -m topics serve ...`."""

from topics.cli.main import main

if __name__ == "__main__":
    main()
