"""Builds every object of a server, in order, in one function. Nothing else in the project knows them all."""
