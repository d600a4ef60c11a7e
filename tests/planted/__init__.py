"""Bugs to plant in the product, each as functions with their replacements, and the tests that must find each bug."""
