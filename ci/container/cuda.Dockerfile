# The gate on NVIDIA GPUs. Run with: docker run --gpus all --ipc host IMAGE ...
FROM pytorch/pytorch:2.11.0-cuda13.0-cudnn9-devel
RUN apt-get update && apt-get install -y --no-install-recommends git && rm -rf /var/lib/apt/lists/*
WORKDIR /harness
COPY . .
RUN python3 -m pip install --no-cache-dir -e '.[suite,cuda]'
WORKDIR /work
ENTRYPOINT ["iris-harness"]
CMD ["gate", "--help"]
