"""The Fleet: the stop button, what is switched on, who else is at work, and why anything was or was not done."""
