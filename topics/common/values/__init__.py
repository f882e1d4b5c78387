"""Values that callers of the library and of its clients give and get. No numpy, no C of ours."""
