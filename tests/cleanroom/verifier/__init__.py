"""A second, independent check of a mark's report, written from the public pages alone."""
