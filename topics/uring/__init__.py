"""The io_uring binding: SQEs in, CQEs out. It knows no file format and no protocol."""
