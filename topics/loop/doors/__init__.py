"""How connections come to a loop, from the kernel or another loop, and leave for another one."""
