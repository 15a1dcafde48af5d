"""What a setting is, and how flags, environment and file become values. Imports no package of ours."""
