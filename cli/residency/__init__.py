"""What `modelsup bench residency` does: measure, report.

`measure` acts; `report` and `page` turn numbers into words and pictures.
"""
