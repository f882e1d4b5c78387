"""SQEs in, CQEs out: the io_uring binding. Knows no file format and no protocol."""
