//! Loads and unloads code.

use std::collections::HashMap;
use std::ffi::CString;

use gpuslice_driver::types::{Status, status};

use super::objects::ProcessObjects;
use super::simulation::Simulation;
use crate::hardware::allocation_sizes::ALIGNMENT;
use crate::model::code::{Function, FunctionAttributes, Kernel, Library, Module};
use crate::model::image::{self, Image};
use crate::model::regions::{Origin, Region};
use crate::state::layout::MemoryKind;
use crate::status::{Outcome, statuses};

/// Returns how many bytes are missing from `bytes` to the next multiple of the granule.
fn padding(bytes: u64, granule: u64) -> u64 {
    bytes.checked_next_multiple_of(granule).map_or(0, |rounded| rounded - bytes)
}

impl ProcessObjects {
    /// Loads code into a context as a module, and returns the module. The variables take memory now. If the settings say that
    /// code takes memory, it does so now, or with lazy loading when the program asks for the first function.
    pub(crate) fn load(
        &mut self,
        simulation: &Simulation,
        context: u64,
        image: Image,
        library: u64,
    ) -> Result<u64, Status> {
        let device = self.contexts.get(context)?.device;
        let module = Module {
            context,
            device,
            charged: 0,
            loaded: false,
            functions: HashMap::new(),
            variables: HashMap::new(),
            library,
            image,
        };
        let handle = self.code.modules.add(module);
        let mut made = self.make_variables(simulation, handle);
        if !simulation.config.lazy {
            made = made.and_then(|()| self.load_code(simulation, handle));
        }
        if let Err(why) = made {
            self.drop_module(simulation, handle);
            return Err(why);
        }
        let mut state = simulation.shared.lock();
        if let Some(usage) = state.usage(simulation.slot, device) {
            usage.modules = usage.modules.saturating_add(1);
            usage.modules_loaded = usage.modules_loaded.saturating_add(1);
        }
        Ok(handle)
    }

    fn make_variables(&mut self, simulation: &Simulation, handle: u64) -> Outcome {
        let module = self.code.modules.get(handle)?;
        let device = module.device;
        let mut sum = 0_u64;
        for (name, size) in module.image.variables.clone() {
            let charged = size.checked_next_multiple_of(ALIGNMENT).ok_or(status::OUT_OF_MEMORY)?;
            self.place_variable(simulation, handle, &name, (size, charged))?;
            sum = sum.saturating_add(charged);
        }
        let padding = padding(sum, simulation.settings.module_granule);
        simulation.grow(device, MemoryKind::Module, padding)?;
        self.code.modules.get_mut(handle)?.charged += padding;
        Ok(())
    }

    /// Loads the code of a module to the device, unless it is there already.
    fn load_code(&mut self, simulation: &Simulation, handle: u64) -> Outcome {
        let module = self.code.modules.get_mut(handle)?;
        if module.loaded {
            return Ok(());
        }
        let bytes = simulation.settings.module_bytes;
        let bytes = bytes.saturating_add(padding(bytes, simulation.settings.module_granule));
        simulation.grow(module.device, MemoryKind::Module, bytes)?;
        (module.loaded, module.charged) = (true, module.charged.saturating_add(bytes));
        Ok(())
    }

    /// Unloads a module, and gives its memory back.
    pub(crate) fn unload(&mut self, simulation: &Simulation, handle: u64) -> Outcome {
        let device = self.code.modules.get(handle)?.device;
        self.drop_module(simulation, handle);
        let mut state = simulation.shared.lock();
        if let Some(usage) = state.usage(simulation.slot, device) {
            usage.modules = usage.modules.saturating_sub(1);
        }
        Ok(())
    }

    fn drop_module(&mut self, simulation: &Simulation, handle: u64) {
        let Ok(module) = self.code.modules.remove(handle) else { return };
        for (address, _) in module.variables.values() {
            self.end_region(simulation, *address);
        }
        for function in module.functions.values() {
            let _ = self.code.functions.remove(*function);
        }
        if let Ok(library) = self.code.libraries.get_mut(module.library) {
            library.loaded.remove(&module.context);
        }
        simulation.shrink(module.device, MemoryKind::Module, module.charged);
    }

    /// Unloads all modules of a context.
    pub(crate) fn unload_all_of(&mut self, simulation: &Simulation, context: u64) {
        for module in self.code.modules.matching(|module| module.context == context) {
            let _ = self.unload(simulation, module);
        }
    }

    /// Returns a function of a module by name. Loads the module's code to the device first.
    pub(crate) fn function(
        &mut self,
        simulation: &Simulation,
        handle: u64,
        name: &str,
    ) -> Result<u64, Status> {
        let function = self.partial(simulation, handle, name)?;
        self.load_code(simulation, handle)?;
        Ok(function)
    }

    /// Returns a function of a module by name. The module's code need not be on the device.
    pub(crate) fn partial(
        &mut self,
        simulation: &Simulation,
        handle: u64,
        name: &str,
    ) -> Result<u64, Status> {
        let module = self.code.modules.get_mut(handle)?;
        if let Some(function) = module.functions.get(name) {
            return Ok(*function);
        }
        if name.is_empty() || !module.image.has_kernel(name) {
            return Err(statuses::NOT_FOUND);
        }
        let ns =
            image::duration(name).or_else(|| module.image.duration()).unwrap_or(simulation.config.kernel_ns);
        let function = self.code.functions.add(Function {
            module: handle,
            context: module.context,
            name: CString::new(name).map_err(|_| status::INVALID_VALUE)?,
            ns,
            is_collective: name.contains("meet"),
            settings: FunctionAttributes::NEW,
            kernel: 0,
            block: [1; 3],
            shared: 0,
        });
        module.functions.insert(name.to_owned(), function);
        Ok(function)
    }

    /// Returns the names of all functions of a module.
    pub(crate) fn function_names(&self, handle: u64) -> Result<Vec<String>, Status> {
        Ok(self.code.modules.get(handle)?.image.kernels.clone().unwrap_or_default())
    }

    /// Returns the address and the size of a variable. A variable inside the code has no charge of its own, and gets an address
    /// when the program first asks for it.
    pub(crate) fn variable(
        &mut self,
        simulation: &Simulation,
        handle: u64,
        name: &str,
    ) -> Result<(u64, u64), Status> {
        let module = self.code.modules.get(handle)?;
        if let Some(variable) = module.variables.get(name) {
            return Ok(*variable);
        }
        let symbol = module.image.symbol(name).ok_or(statuses::NOT_FOUND)?;
        let Some(inside) = symbol.inside else {
            self.place_variable(simulation, handle, name, (symbol.size, 0))?;
            return self.variable(simulation, handle, name);
        };
        let holder = module.image.variables.get(inside).and_then(|(name, _)| module.variables.get(name));
        let (start, size) = *holder.ok_or(statuses::NOT_FOUND)?;
        let fits = symbol.offset.checked_add(symbol.size).is_some_and(|end| end <= size);
        if fits { Ok((start + symbol.offset, symbol.size)) } else { Err(statuses::NOT_FOUND) }
    }

    /// Gives a variable of `size` bytes an address, and charges the process `charged` bytes for it.
    fn place_variable(
        &mut self,
        simulation: &Simulation,
        handle: u64,
        name: &str,
        (size, charged): (u64, u64),
    ) -> Outcome {
        let module = self.code.modules.get_mut(handle)?;
        let (context, device) = (module.context, module.device);
        simulation.allocate(device, MemoryKind::Module, charged)?;
        let size = size.max(1);
        let Some(address) = simulation.arena.take(size, ALIGNMENT) else {
            simulation.release(device, MemoryKind::Module, charged);
            return Err(status::OUT_OF_MEMORY);
        };
        let (backing, origin, device) = (address, Origin::Variable, Some(device));
        self.regions.add(address, Region { size, backing, device, context, origin, charged, number: 0 });
        module.variables.insert(name.to_owned(), (address, size));
        Ok(())
    }

    /// Adds a library. No module is loaded yet.
    pub(crate) fn add_library(&mut self, image: Image) -> u64 {
        self.code.libraries.add(Library { image, kernels: HashMap::new(), loaded: HashMap::new() })
    }

    /// Removes a library, and unloads all its modules.
    pub(crate) fn end_library(&mut self, simulation: &Simulation, handle: u64) -> Outcome {
        let library = self.code.libraries.remove(handle)?;
        for module in library.loaded.values() {
            let _ = self.unload(simulation, *module);
        }
        for kernel in library.kernels.values() {
            let _ = self.code.kernels.remove(*kernel);
        }
        Ok(())
    }

    /// Returns the module of a library in the current context. Loads it first if necessary.
    pub(crate) fn library_module(&mut self, simulation: &Simulation, handle: u64) -> Result<u64, Status> {
        let context = self.current()?.0;
        self.load_into(simulation, handle, context)
    }

    fn load_into(&mut self, simulation: &Simulation, handle: u64, context: u64) -> Result<u64, Status> {
        let library = self.code.libraries.get(handle)?;
        if let Some(module) = library.loaded.get(&context) {
            return Ok(*module);
        }
        let image = library.image.clone();
        let module = self.load(simulation, context, image, handle)?;
        self.code.libraries.get_mut(handle)?.loaded.insert(context, module);
        Ok(module)
    }

    /// Loads a library into every context. With lazy loading it does nothing.
    pub(crate) fn load_everywhere(&mut self, simulation: &Simulation, handle: u64) -> Outcome {
        let contexts = self.contexts.matching(|_| !simulation.config.lazy);
        contexts.into_iter().try_for_each(|context| self.load_into(simulation, handle, context).map(drop))
    }

    /// Loads every library into a new context. With lazy loading it does nothing.
    pub(crate) fn load_libraries(&mut self, simulation: &Simulation, context: u64) -> Outcome {
        let libraries = self.code.libraries.matching(|_| !simulation.config.lazy);
        libraries.into_iter().try_for_each(|library| self.load_into(simulation, library, context).map(drop))
    }

    /// Returns true if the code of a function is on the device.
    pub(crate) fn is_loaded(&self, handle: u64) -> Result<bool, Status> {
        let function = self.code.functions.get(handle)?;
        self.code.modules.get(function.module).map(|module| module.loaded)
    }

    /// Returns a kernel of a library by name.
    pub(crate) fn kernel(&mut self, handle: u64, name: &str) -> Result<u64, Status> {
        let library = self.code.libraries.get_mut(handle)?;
        if let Some(kernel) = library.kernels.get(name) {
            return Ok(*kernel);
        }
        if name.is_empty() || !library.image.has_kernel(name) {
            return Err(statuses::NOT_FOUND);
        }
        let c_name = CString::new(name).map_err(|_| status::INVALID_VALUE)?;
        let kernel = self.code.kernels.add(Kernel {
            library: handle,
            name: c_name,
            settings: FunctionAttributes::NEW,
        });
        library.kernels.insert(name.to_owned(), kernel);
        Ok(kernel)
    }

    /// Returns the names of all kernels of a library.
    pub(crate) fn kernel_names(&self, handle: u64) -> Result<Vec<String>, Status> {
        Ok(self.code.libraries.get(handle)?.image.kernels.clone().unwrap_or_default())
    }

    /// Returns the function that a handle means for a launch. The handle is of a function, or of a kernel; a kernel means its
    /// function in the current context.
    pub(crate) fn launchable(&mut self, simulation: &Simulation, handle: u64) -> Result<u64, Status> {
        if let Ok(function) = self.code.functions.get(handle) {
            let module = function.module;
            return self.load_code(simulation, module).map(|()| handle);
        }
        let kernel = self.code.kernels.get(handle)?;
        let (library, name) = (kernel.library, kernel.name.to_string_lossy().into_owned());
        let settings = kernel.settings;
        let module = self.library_module(simulation, library)?;
        let function = self.function(simulation, module, &name)?;
        let made = self.code.functions.get_mut(function)?;
        if made.kernel == 0 {
            (made.kernel, made.settings) = (handle, settings);
        }
        Ok(function)
    }
}
