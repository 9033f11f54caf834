"""What every network needs: its weights, the device it runs on, the forms of its files."""
