/* uring/ring */
