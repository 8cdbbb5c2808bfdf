"""How facts become bytes, and the one port that every engine implements."""
