"""Integrations: one file for each trainer, imported only by its users; it imports its host then."""
