"""Apply a GPU cap where there is no GPU, and print the options that TensorFlow would use.

A made-up device is put into TensorFlow's list, as its own unit tests do; all that follows is
TensorFlow's code up to the message that it hands to its C++ part.
"""

from __future__ import annotations

import json
import os

import tensorflow as tf
from modelsup.worker.contract import LaunchSpec
from modelsup.worker.runtimes.tensorflow_device import apply_caps
from tensorflow.python.eager import context

eager = context.context()
tf.config.list_physical_devices()
gpu = context.PhysicalDevice("/physical_device:GPU:0", "GPU")
eager._physical_devices.append(gpu)
eager._physical_device_to_index[gpu] = len(eager._physical_devices) - 1
eager._visible_device_list.append(gpu)
eager._memory_growth_map[gpu] = None

os.environ["TF_GPU_ALLOCATOR"] = "cuda_malloc_async"
apply_caps(
    LaunchSpec(
        uid="u",
        model="m",
        version="1",
        runtime="tensorflow",
        source=None,
        secret="s",
        temp_dir="/tmp",
        device="GPU-1234",
        gpu_memory_limit=1536 * 1024 * 1024,
        threads=3,
    )
)
options = eager.config.gpu_options
growth = os.environ["TF_FORCE_GPU_ALLOW_GROWTH"]
print(
    json.dumps(
        {
            "limits": [list(d.memory_limit_mb) for d in options.experimental.virtual_devices],
            "fraction": options.per_process_gpu_memory_fraction,
            "growth_map": [eager._memory_growth_map[gpu]],
            "forced_growth": growth,
            "visible": os.environ["CUDA_VISIBLE_DEVICES"],
            "allocator": os.environ.get("TF_GPU_ALLOCATOR"),
            "threads": [
                eager.config.intra_op_parallelism_threads,
                eager.config.inter_op_parallelism_threads,
            ],
        }
    )
)
