"""What a record tells before it is randomised: bounded whatever the record is."""
