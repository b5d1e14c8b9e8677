"""``python -m dpdist.cli``: the command line without its script."""

from dpdist.cli import main

if __name__ == "__main__":  # worker processes import this module again and must not start a second command
    main()
