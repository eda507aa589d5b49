"""The command ``blackout``: a small root, one file for each verb."""
