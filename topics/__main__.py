"""The console script without its script: `python -m topics serve ...`."""

from topics_command import main

if __name__ == "__main__":
    main()
