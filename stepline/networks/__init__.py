"""Common needs of all networks: weights, device, file formats."""
