"""Records of API objects, each declared once."""
