/* UCX as it is where it knows CUDA memory, for the far device: a program that is linked with these
 * in the place of some of UCX's calls (-Wl,--wrap) has a network that reads far memory by itself,
 * as a card does, by the mapping that may be touched (ucx_far_reach). What is not registered as
 * CUDA memory, or not sent as such, dies on the way: it must not reach the processor's copies. */
#include "tests/integration/ucx_far.h"

#include "common/status.h"

#include <ucp/api/ucp.h>

enum { HANDLES_MAX = 16 };

const void *(*ucx_far_reach)(const void *pointer, size_t bytes);
bool ucx_far_knows;
uint64_t ucx_far_sent;

static ucp_mem_h handles[HANDLES_MAX];

ucs_status_t __real_ucp_context_query(ucp_context_h context, ucp_context_attr_t *attributes);
ucs_status_t __wrap_ucp_context_query(ucp_context_h context, ucp_context_attr_t *attributes);
ucs_status_t __real_ucp_mem_map(ucp_context_h context, const ucp_mem_map_params_t *params,
                                ucp_mem_h *handle);
ucs_status_t __wrap_ucp_mem_map(ucp_context_h context, const ucp_mem_map_params_t *params,
                                ucp_mem_h *handle);
ucs_status_t __real_ucp_mem_query(const ucp_mem_h handle, ucp_mem_attr_t *attributes);
ucs_status_t __wrap_ucp_mem_query(const ucp_mem_h handle, ucp_mem_attr_t *attributes);
ucs_status_ptr_t __real_ucp_am_send_nbx(ucp_ep_h endpoint, unsigned id, const void *header,
                                        size_t header_length, const void *buffer, size_t count,
                                        const ucp_request_param_t *params);
ucs_status_ptr_t __wrap_ucp_am_send_nbx(ucp_ep_h endpoint, unsigned id, const void *header,
                                        size_t header_length, const void *buffer, size_t count,
                                        const ucp_request_param_t *params);

ucs_status_t __wrap_ucp_context_query(ucp_context_h context, ucp_context_attr_t *attributes)
{
    const ucs_status_t status = __real_ucp_context_query(context, attributes);
    if (ucx_far_knows && attributes->field_mask & UCP_ATTR_FIELD_MEMORY_TYPES)
        attributes->memory_types |= UCS_BIT(UCS_MEMORY_TYPE_CUDA);
    return status;
}

static bool is_far(ucp_mem_h handle)
{
    for (size_t i = 0; i < HANDLES_MAX; i++)
        if (handles[i] == handle)
            return true;
    return false;
}

ucs_status_t __wrap_ucp_mem_map(ucp_context_h context, const ucp_mem_map_params_t *params,
                                ucp_mem_h *handle)
{
    ucp_mem_map_params_t near = *params;
    union {
        const void *is_const;
        void *is_not;
    } at = {.is_const = ucx_far_reach(params->address, params->length)};
    if (!at.is_const)
        return __real_ucp_mem_map(context, params, handle);
    ASSERT(ucx_far_knows && params->field_mask & UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE &&
           params->memory_type == UCS_MEMORY_TYPE_CUDA);
    near.address = at.is_not;
    near.field_mask &= ~(uint64_t)UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
    const ucs_status_t status = __real_ucp_mem_map(context, &near, handle);
    size_t i = 0;
    while (handles[i])
        ASSERT(++i < HANDLES_MAX);
    handles[i] = *handle;
    return status;
}

ucs_status_t __wrap_ucp_mem_query(const ucp_mem_h handle, ucp_mem_attr_t *attributes)
{
    const ucs_status_t status = __real_ucp_mem_query(handle, attributes);
    if (is_far(handle))
        attributes->mem_type = UCS_MEMORY_TYPE_CUDA;
    return status;
}

ucs_status_ptr_t __wrap_ucp_am_send_nbx(ucp_ep_h endpoint, unsigned id, const void *header,
                                        size_t header_length, const void *buffer, size_t count,
                                        const ucp_request_param_t *params)
{
    ucp_request_param_t near = *params;
    const void *at = count > 0 ? ucx_far_reach(buffer, count) : NULL;
    if (!at)
        return __real_ucp_am_send_nbx(endpoint, id, header, header_length, buffer, count, params);
    ASSERT(params->op_attr_mask & UCP_OP_ATTR_FIELD_MEMORY_TYPE &&
           params->memory_type == UCS_MEMORY_TYPE_CUDA);
    ASSERT(params->op_attr_mask & UCP_OP_ATTR_FIELD_MEMH && is_far(params->memh));
    ASSERT(params->flags & UCP_AM_SEND_FLAG_RNDV);
    near.op_attr_mask &= ~(uint32_t)UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    ucx_far_sent += count;
    return __real_ucp_am_send_nbx(endpoint, id, header, header_length, at, count, &near);
}
