"""Feedline feeds training loops: it fetches items, orders, prepares and batches them, and resumes exactly."""
