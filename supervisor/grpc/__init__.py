"""The gRPC side: KServe V2 and TensorFlow Serving. Needs the extra `grpc`."""
