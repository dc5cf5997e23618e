"""What other programs need to start cavemem: their configuration, and packages for those that take some."""
