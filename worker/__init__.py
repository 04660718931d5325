"""The process that serves one loaded model, and the forkserver that makes it."""
