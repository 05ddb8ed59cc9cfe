"""Reading of arguments and files, with faults that name the field."""
