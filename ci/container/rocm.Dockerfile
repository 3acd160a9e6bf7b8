# The gate on AMD GPUs. Run with: docker run --device /dev/kfd --device /dev/dri --group-add video --ipc host IMAGE ...
# An image with PyTorch for ROCm and Triton 3.6 to 3.9; choose one that fits the driver, and name its tag.
ARG BASE=rocm/pytorch:latest
FROM ${BASE}
WORKDIR /harness
COPY . .
RUN python3 -m pip install --no-cache-dir -e '.[suite,rocm]'
WORKDIR /work
ENTRYPOINT ["iris-harness"]
CMD ["gate", "--help"]
