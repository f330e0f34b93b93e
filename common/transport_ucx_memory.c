/* Memory that bodies come from and go to: registered, and of which kind.
 *
 * A UCX without CUDA takes a GPU's memory for the host's, and says nothing until it touches it. So
 * which kinds it knows is asked of the context, and what it takes a registered piece for of that
 * piece. */
#include "common/transport_ucx.h"

#include <stdio.h>

static ucs_memory_type_t type_of(enum transport_memory_kind kind)
{
    return kind == TRANSPORT_MEMORY_CUDA ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST;
}

static gradweir_status check_kind(ucp_mem_h handle, enum transport_memory_kind kind,
                                  uint64_t length)
{
    ucp_mem_attr_t attributes = {.field_mask = UCP_MEM_ATTR_FIELD_MEM_TYPE};
    const ucs_status_t status = ucp_mem_query(handle, &attributes);
    if (status != UCS_OK)
        return fail(GRADWEIR_ERR_IO, "ucx: does not say what %llu registered bytes are: %s",
                    (unsigned long long)length, ucs_status_string(status));
    if (attributes.mem_type != type_of(kind))
        return fail(GRADWEIR_ERR_UNSUPPORTED,
                    "ucx: takes %llu bytes to be registered for %s memory, and they are to be %s",
                    (unsigned long long)length, ucs_memory_type_names[attributes.mem_type],
                    ucs_memory_type_names[type_of(kind)]);
    return GRADWEIR_OK;
}

/* What is registered as a GPU's is said to be so: asking it, UCX might find out otherwise. The
 * host's is for UCX to see. */
gradweir_status ucx_memory_map(struct transport *transport, enum transport_memory_kind kind,
                               void *pointer, uint64_t length, uint32_t *memory)
{
    struct ucx *ucx = (struct ucx *)transport;
    uint32_t i = 0;
    while (i < ucx->settings.memories_max && ucx->memories[i].handle)
        i++;
    if (i == ucx->settings.memories_max)
        return fail(GRADWEIR_ERR_FULL, "ucx: %u memories are mapped already", i);
    if (kind == TRANSPORT_MEMORY_CUDA)
        TRY(ucx_knows(transport, kind));
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                                                 UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .address = pointer,
                                   .length = length,
                                   .memory_type = type_of(kind)};
    if (kind == TRANSPORT_MEMORY_CUDA)
        params.field_mask |= UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
    ucp_mem_h handle = NULL;
    const ucs_status_t status = ucp_mem_map(ucx->context, &params, &handle);
    if (status != UCS_OK)
        return fail(GRADWEIR_ERR_IO, "ucx: cannot register %llu bytes: %s",
                    (unsigned long long)length, ucs_status_string(status));
    const gradweir_status is_kind = check_kind(handle, kind, length);
    if (is_kind != GRADWEIR_OK) {
        ucp_mem_unmap(ucx->context, handle);
        return is_kind;
    }
    ucx->memories[i] = (struct ucx_memory){.handle = handle, .kind = kind};
    *memory = i + 1;
    return GRADWEIR_OK;
}

bool ucx_memory_is_far(const struct ucx *ucx, uint32_t memory)
{
    return memory > 0 && ucx->memories[memory - 1].handle &&
           ucx->memories[memory - 1].kind == TRANSPORT_MEMORY_CUDA;
}

void ucx_memory_unmap(struct transport *transport, uint32_t memory)
{
    struct ucx *ucx = (struct ucx *)transport;
    ASSERT(memory > 0 && memory <= ucx->settings.memories_max && ucx->memories[memory - 1].handle);
    ucp_mem_unmap(ucx->context, ucx->memories[memory - 1].handle);
    ucx->memories[memory - 1].handle = NULL;
}

gradweir_status ucx_knows(const struct transport *transport, enum transport_memory_kind kind)
{
    const struct ucx *ucx = (const struct ucx *)transport;
    ucp_context_attr_t attributes = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};
    const uint64_t wanted = kind == TRANSPORT_MEMORY_CUDA ? UCS_BIT(UCS_MEMORY_TYPE_CUDA)
                                                          : UCS_BIT(UCS_MEMORY_TYPE_HOST);
    const ucs_status_t status = ucp_context_query(ucx->context, &attributes);
    if (status != UCS_OK)
        return fail(GRADWEIR_ERR_IO, "ucx: does not say which memory it knows: %s",
                    ucs_status_string(status));
    if (attributes.memory_types & wanted)
        return GRADWEIR_OK;
    unsigned major, minor, release;
    ucp_get_version(&major, &minor, &release);
    return fail(GRADWEIR_ERR_UNSUPPORTED, "UCX %u.%u.%u here does not know CUDA memory", major,
                minor, release);
}
