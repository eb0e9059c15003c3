"""Archives: documents and logs, compressed, in a folder or in a bucket of S3, Google Cloud Storage or Azure."""
