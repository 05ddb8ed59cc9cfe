"""Placement: node and GPUs of each arriving task, least power and fragmentation."""
