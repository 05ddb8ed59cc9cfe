"""Replay of streams of jobs that may share units: published policies, ours, and what no policy can save."""
