"""From YAML to a job that is checked as a whole."""
