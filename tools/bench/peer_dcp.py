"""PyTorch's distributed checkpoint as a resharder: load, then save again.

Four processes with the gloo backend. The source is cut as TP4; the target as
TP2 with what is left cut over two data-parallel ranks, in rows (FSDP2 beside
tensor parallelism).
SPDX-License-Identifier: Apache-2.0
"""

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.distributed.tensor as dtensor
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh

import dcp_bench
import peer_state

PORT = 29612


def make_state(tensors, mesh_shape):
    """Tensors of ones, in touched memory. The last axis of the mesh is TP."""
    mesh = init_device_mesh("cpu", mesh_shape)
    state = {}
    for name, role, shape in tensors:
        cut = peer_state.cut_dimension(name)
        tensor_parallel = (dtensor.Replicate()
                           if cut is None else dtensor.Shard(cut))
        data_parallel = [dtensor.Shard(0)] * (len(mesh_shape) - 1)
        state[f"{name} {role}"] = dtensor.ones(
            shape, device_mesh=mesh,
            placements=[*data_parallel, tensor_parallel])
    return state


def save_rank(rank, directory, tensors):
    dcp_bench.start_rank(rank, PORT)
    state = make_state(tensors, (dcp_bench.RANKS,))
    for name, role, shape in tensors:
        mine = state[f"{name} {role}"]
        cut = dtensor.distribute_tensor(peer_state.values(name, role, shape),
                                        mine.device_mesh, mine.placements,
                                        src_data_rank=None)
        mine.to_local().copy_(cut.to_local())
    dcp.save(state, checkpoint_id=directory)
    dist.destroy_process_group()


def make(directory, tensors):
    mp.spawn(save_rank, (directory, tensors), nprocs=dcp_bench.RANKS)


def reshard_rank(rank, source, target, tensors, results):
    dcp_bench.start_rank(rank, PORT)
    state = make_state(tensors, (dcp_bench.RANKS // 2, 2))
    dcp_bench.drop_caches()

    def load_and_save():
        dcp.load(state, checkpoint_id=source)
        dcp.save(state, checkpoint_id=target)
        if rank == 0:
            peer_state.sync_files(target)

    seconds = dcp_bench.timed(load_and_save)
    if rank == 0:
        results.put(seconds)
    dist.destroy_process_group()


def reshard(source, target, tensors):
    """Seconds without the start of the processes and the making of room."""
    results = mp.get_context("spawn").SimpleQueue()
    mp.spawn(reshard_rank, (source, target, tensors, results),
             nprocs=dcp_bench.RANKS)
    return results.get()


def check(target, tensors):
    for name, role, shape in tensors:
        state = {f"{name} {role}": torch.zeros(shape)}
        dcp.load(state, checkpoint_id=target, no_dist=True)
        peer_state.compare("DCP", name, role, shape, *state.values())
