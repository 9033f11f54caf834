"""What was tried with a vision-language model and brought nothing."""
