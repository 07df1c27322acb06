// SPDX-License-Identifier: Apache-2.0
//
// The other half of compiled.hpp: the templates for training on `Host` that do not depend on the network.
#pragma once

#include <cupola/compiled.hpp>

#ifdef CUPOLA_OPS

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <cupola/data/in_memory.hpp>
#include <cupola/losses.hpp>
#include <cupola/ops/host/element_update.hpp>
#include <cupola/ops/host/elementwise_loss.hpp>
#include <cupola/ops/host/id_check.hpp>
#include <cupola/ops/host/peak_rates.hpp>
#include <cupola/ops/host/softmax_cross_entropy.hpp>
#include <cupola/ops/host/training_step.hpp>
#include <cupola/optim/moving_average.hpp>
#include <cupola/optim/update_parameters.hpp>
#include <cupola/optimizers.hpp>
#include <cupola/parallel/data_parallel.hpp>
#include <cupola/parallel/host/concat_mean.hpp>
#include <cupola/parallel/host/queue.hpp>
#include <cupola/tensor/algorithms.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The updates of the optimisers of a list.
template <class List>
struct CompiledUpdates;
template <class... O>
struct CompiledUpdates<TypeList<O...>> {
    template <class One>
    static constexpr bool has = (std::same_as<One, O> || ...);
    template <class One>
    [[nodiscard]] static constexpr std::size_t number_of() {
        const bool is[] = {std::same_as<One, O>...};
        std::size_t number = 0;
        while (!is[number]) ++number;
        return number;
    }
    /// update_by_formula(*optimizer, u) for the optimiser with this number in the list.
    static void update(std::size_t number, const void* optimizer, const Update<Host>& u);
    /// The same for write_constants_by_formula.
    static void write_constants(std::size_t number, const void* optimizer, const Update<Host>& u, ConstantsWriter& to);
};

template <class... O>
void CompiledUpdates<TypeList<O...>>::update(std::size_t number, const void* optimizer, const Update<Host>& u) {
    using Call = void (*)(const void*, const Update<Host>&);
    static constexpr Call calls[] = {
        [](const void* o, const Update<Host>& of) { update_by_formula(*static_cast<const O*>(o), of); }...};
    calls[number](optimizer, u);
}
template <class... O>
void CompiledUpdates<TypeList<O...>>::write_constants(std::size_t number, const void* optimizer, const Update<Host>& u,
                                                      ConstantsWriter& to) {
    using Call = void (*)(const void*, const Update<Host>&, ConstantsWriter&);
    static constexpr Call calls[] = {[](const void* o, const Update<Host>& of, ConstantsWriter& out) {
        write_constants_by_formula(*static_cast<const O*>(o), of, out);
    }...};
    calls[number](optimizer, u, to);
}

template <class O>
    requires(CompiledUpdates<Optimizers>::has<O>)
struct FormulaUpdate<O, Host> {
    static void apply(const O& optimizer, const Update<Host>& u) {
        CompiledUpdates<Optimizers>::update(CompiledUpdates<Optimizers>::number_of<O>(), &optimizer, u);
    }
    static void write_constants(const O& optimizer, const Update<Host>& u, ConstantsWriter& to) {
        CompiledUpdates<Optimizers>::write_constants(CompiledUpdates<Optimizers>::number_of<O>(), &optimizer, u, to);
    }
};

}}}  // namespace cupola::CUPOLA_ABI::impl

#define CUPOLA_TEMPLATE extern template
#define CUPOLA_ELEMENT float
#include <cupola/compiled_training_parts.hpp>
#undef CUPOLA_ELEMENT
#define CUPOLA_ELEMENT BFloat16
#include <cupola/compiled_training_parts.hpp>
#undef CUPOLA_ELEMENT
#include <cupola/compiled_training_parts.hpp>
#undef CUPOLA_TEMPLATE

#endif
