"""``python -m tests.benchmarks answers``: every default against what a user would pick instead.

`problems` has the generated laws, `real_tables` the tables of packages; both say which rules they were used for, so
that none judges a rule that was chosen on it. `contenders` fits, `cells` runs what the file of results does not have
yet, `verdicts` says what fails, `page` prints it and writes the table of `deploy/site/benchmarks.md`. diffprivlib needs
an older scikit-learn than this package: `record_diffprivlib` runs in an environment of its own, and its numbers are
kept beside ours.
"""
