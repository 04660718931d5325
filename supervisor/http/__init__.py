"""What the supervisor speaks over HTTP: the prediction gateway and the control API."""
