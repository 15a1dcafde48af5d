"""Metal3DataClaims, Metal3Datas and Metal3DataTemplates: indexes, addresses, and the two secrets of a machine."""
